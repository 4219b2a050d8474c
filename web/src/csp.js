/*
 * The terminal makes <style> elements and style attributes. Our policy forbids both, as they are how
 * markup that got in would dress itself; a script of ours may set the same things by other calls, which
 * is what is done here instead. Nothing else in the page makes either.
 */
const make = document.createElement.bind(document);

function sheetElement() {
    const element = make("span"),
        sheet = new CSSStyleSheet();
    element.hidden = true;
    document.adoptedStyleSheets.push(sheet);
    const set = { set: (css) => sheet.replaceSync(css), get: () => "", configurable: true };
    Object.defineProperties(element, { textContent: set, innerText: set, sheet: { get: () => sheet } });
    const remove = element.remove.bind(element);
    element.remove = () => {
        document.adoptedStyleSheets = document.adoptedStyleSheets.filter((one) => one !== sheet);
        remove();
    };
    return element;
}

document.createElement = (name, options) => (name === "style" ? sheetElement() : make(name, options));
const setAttribute = Element.prototype.setAttribute;
Element.prototype.setAttribute = function (name, value) {
    if (name === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
};
