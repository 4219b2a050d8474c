// What panes and players have in common: an xterm in our colours.
import { Terminal } from "@xterm/xterm";
import { effect } from "@preact/signals";
import { theme } from "./theme.js";

const dark = { background: "#111718", foreground: "#e4ebea", cursor: "#5cc3c8", selectionBackground: "#2f5254" };
const light = {
    background: "#ffffff",
    foreground: "#1d2526",
    cursor: "#126e73",
    selectionBackground: "#b7dcde",
    black: "#1d2526",
    red: "#b3341f",
    green: "#1b7a3d",
    yellow: "#8a6100",
    blue: "#1f5fae",
    magenta: "#8a3a8f",
    cyan: "#126e73",
    white: "#c6cfce",
    brightBlack: "#5d6b6c",
    brightRed: "#c8452f",
    brightGreen: "#2a8f4c",
    brightYellow: "#9c7410",
    brightBlue: "#3273c4",
    brightMagenta: "#a04fa5",
    brightCyan: "#1b868c",
    brightWhite: "#93a3a4",
};

export function makeTerminal(options) {
    const system = matchMedia("(prefers-color-scheme: dark)");
    const colours = () => ((theme.value === "system" ? system.matches : theme.value === "dark") ? dark : light);
    const term = new Terminal({
        fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
        fontSize: 13,
        scrollback: 10000,
        allowProposedApi: true,
        screenReaderMode: false,
        convertEol: false,
        theme: colours(),
        ...options,
    });
    const stop = effect(() => {
        void theme.value;
        term.options.theme = colours();
    });
    const change = () => {
        term.options.theme = colours();
    };
    system.addEventListener("change", change);
    return {
        term,
        close: () => {
            stop();
            system.removeEventListener("change", change);
            term.dispose();
        },
    };
}

// xterm lets go of a selection when the number of rows changes. Here it stays with its text: each end is
// kept as its logical line, which a marker follows through trimmed and rewrapped rows, and the cells from
// there on. Where that gives another text (a screen that was cut), there is none rather than a wrong one.
export function resizeTerminal(term, cols, rows) {
    const text = term.getSelection();
    const ends = text ? Object.values(term.getSelectionPosition()).map((end) => anchor(term, end)) : [];
    term.resize(cols, rows);
    const [start, end] = ends.map(({ marker, line, cells }) => {
        const first = marker ? marker.line : line; // -1: it is gone
        marker?.dispose();
        return first < 0 ? null : [first + Math.floor(cells / cols), cells % cols];
    });
    if (!start || !end) return;
    term.select(start[1], start[0], (end[0] - start[0]) * cols + end[1] - start[1]);
    if (term.getSelection() !== text) term.clearSelection();
}

function anchor(term, { x, y }) {
    const buffer = term.buffer.active;
    let line = y;
    while (line > 0 && buffer.getLine(line)?.isWrapped) line--;
    const marker = term.registerMarker(line - buffer.baseY - buffer.cursorY); // none in the other buffer
    return { marker, line, cells: (y - line) * term.cols + x };
}

// Also where the page is no secure context, which clipboards want.
export async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        return;
    } catch {
        /* the older way */
    }
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
}
