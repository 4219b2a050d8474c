// What a program printed, without a terminal: colours and bold as classes, a line that is printed again
// (carriage return) in place of the one before, all other control sequences left out. Incremental: a
// sequence may be cut between two pieces.

const SEQUENCE =
    /\x1b(?:\[([0-9;:?<=>]*)([ -/]*[@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])/y;
const CUT = /\x1b(?:\[[0-9;:?<=>]*[ -/]*|\][^\x07\x1b]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)?$/;
const PENDING_MAX = 4096; // characters of a sequence that has not ended; more than that is text
const NONE = { fg: "", bg: "", bold: false, dim: false, italic: false, underline: false, inverse: false };
const ON = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse" };
const OFF = { 22: ["bold", "dim"], 23: ["italic"], 24: ["underline"], 27: ["inverse"] };

const hex = (...rgb) => "#" + rgb.map((v) => Math.min(255, Number(v) || 0).toString(16).padStart(2, "0")).join("");

// Colour N of 256: the first 16 are classes, so that they follow the page's colours.
function indexed(n) {
    if (!(n >= 0 && n < 256)) return "";
    if (n < 16) return String(n);
    if (n >= 232) return hex(8 + 10 * (n - 232), 8 + 10 * (n - 232), 8 + 10 * (n - 232));
    const level = (v) => (v ? 55 + 40 * v : 0);
    return hex(level(Math.floor((n - 16) / 36)), level(Math.floor((n - 16) / 6) % 6), level((n - 16) % 6));
}

// One "select graphic rendition" sequence; gives the style that follows.
function rendition(style, text) {
    const codes = text.split(/[;:]/).map(Number);
    let next = { ...style };
    for (let i = 0; i < codes.length; i++) {
        const code = codes[i];
        if (code === 0) next = { ...NONE };
        else if (ON[code]) next[ON[code]] = true;
        else if (OFF[code]) for (const name of OFF[code]) next[name] = false;
        else if (code === 38 || code === 48) {
            const colour = codes[i + 1] === 5 ? indexed(codes[i + 2]) : hex(...codes.slice(i + 2, i + 5));
            next[code === 38 ? "fg" : "bg"] = colour;
            i += codes[i + 1] === 5 ? 2 : 4;
        } else if (code === 39) next.fg = "";
        else if (code === 49) next.bg = "";
        else if (code >= 30 && code <= 37) next.fg = String(code - 30);
        else if (code >= 40 && code <= 47) next.bg = String(code - 40);
        else if (code >= 90 && code <= 97) next.fg = String(code - 82);
        else if (code >= 100 && code <= 107) next.bg = String(code - 92);
    }
    return next;
}

function look({ fg, bg, bold, dim, italic, underline, inverse }) {
    const named = [bold && "a-bold", dim && "a-dim", italic && "a-italic", underline && "a-underline"];
    const style = {};
    for (const [colour, prefix, property] of inverse
        ? [
              [fg || "default", "a-bg", "backgroundColor"],
              [bg || "default", "a-fg", "color"],
          ]
        : [
              [fg, "a-fg", "color"],
              [bg, "a-bg", "backgroundColor"],
          ]) {
        if (!colour) continue;
        if (colour.startsWith("#")) style[property] = colour;
        else named.push(`${prefix}${colour === "default" ? (prefix === "a-bg" ? 7 : 0) : colour}`);
    }
    return { class: named.filter(Boolean).join(" "), style };
}

export class Printed {
    constructor(kept) {
        this.kept = kept; // characters; the oldest are dropped
        this.parts = []; // { text, class, style, stream }
        this.size = 0;
        this.dropped = false;
        this.state = new Map(); // of each stream: style, pending text, whether its next text replaces the line
    }

    push(stream, text) {
        const at = this.state.get(stream) ?? { style: NONE, pending: "", again: false };
        this.state.set(stream, at);
        text = at.pending + text;
        at.pending = "";
        const cut = CUT.exec(text);
        if (cut && text.length - cut.index <= PENDING_MAX) {
            at.pending = text.slice(cut.index);
            text = text.slice(0, cut.index);
        }
        for (let i = 0; i < text.length;) {
            const c = text[i];
            if (c === "\x1b") {
                SEQUENCE.lastIndex = i;
                const found = SEQUENCE.exec(text);
                if (found?.[2] === "m" && !/[?<=>]/.test(found[1])) at.style = rendition(at.style, found[1]);
                else if (found?.[2] === "K" && found[1] === "2") this.#forgetLine();
                i += found ? found[0].length : 1;
            } else if (c === "\r") {
                at.again = text[i + 1] !== "\n";
                i++;
            } else if (c === "\b") {
                this.#back();
                i++;
            } else {
                const rest = text.slice(i).search(/[\x1b\r\b]/);
                const plain = rest < 0 ? text.slice(i) : text.slice(i, i + rest);
                if (at.again && plain[0] !== "\n") this.#forgetLine();
                at.again = false;
                this.#add(stream, at.style, plain.replace(/[\x00-\x08\x0b-\x1f\x7f]/g, ""));
                i += plain.length;
            }
        }
        this.#drop();
    }

    #add(stream, style, text) {
        if (!text) return;
        const { class: name, style: css } = look(style);
        const key = `${stream} ${name} ${JSON.stringify(css)}`;
        const last = this.parts.at(-1);
        if (last?.key === key) this.parts[this.parts.length - 1] = { ...last, text: last.text + text };
        else this.parts.push({ key, text, class: name, style: css, stream });
        this.size += text.length;
    }

    // The last `count` characters of what is kept.
    #shorten(count) {
        while (count > 0 && this.parts.length) {
            const last = this.parts.at(-1),
                less = Math.min(count, last.text.length);
            if (less === last.text.length) this.parts.pop();
            else this.parts[this.parts.length - 1] = { ...last, text: last.text.slice(0, -less) };
            this.size -= less;
            count -= less;
        }
    }

    #forgetLine() {
        while (this.parts.length) {
            const end = this.parts.at(-1).text,
                line = end.lastIndexOf("\n");
            this.#shorten(end.length - line - 1);
            if (line >= 0) return;
        }
    }

    #back() {
        if (this.parts.length && !this.parts.at(-1).text.endsWith("\n")) this.#shorten(1);
    }

    #drop() {
        let less = this.size - this.kept;
        if (less <= 0) return;
        this.dropped = true;
        this.size = this.kept;
        let whole = 0;
        while (less >= this.parts[whole].text.length) less -= this.parts[whole++].text.length;
        this.parts.splice(0, whole);
        if (less) this.parts[0] = { ...this.parts[0], text: this.parts[0].text.slice(less) };
    }
}
