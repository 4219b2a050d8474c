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
