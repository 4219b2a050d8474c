// Numbers and times for people.
import { signal } from "@preact/signals";

// Ticks while somebody looks: ages and countdowns. No request is made for it.
export const now = signal(Date.now());
setInterval(() => {
    if (!document.hidden) now.value = Date.now();
}, 1000);

export function bytes(count) {
    if (!Number.isFinite(count)) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    while (count >= 1024 && at < units.length - 1) {
        count /= 1024;
        at++;
    }
    return `${at && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

export function duration(ms) {
    const seconds = Math.max(0, Math.floor(ms / 1000));
    if (seconds < 120) return `${seconds} s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
    return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

const day = (date) => date.toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" });

export function clock(text) {
    const when = new Date(text);
    return Number.isNaN(when.getTime()) ? String(text) : when.toLocaleTimeString([], { hour12: false });
}

export function moment(text) {
    if (!text) return "–";
    const when = new Date(text);
    return Number.isNaN(when.getTime()) ? String(text) : `${day(when)}, ${clock(text)}`;
}

export const number = (value) => Number(value).toLocaleString("en");

// "512m", "1.5g", "4096" to bytes; NaN when it is none.
export function parseBytes(text) {
    const match = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*$/i.exec(text);
    return match ? Math.round(Number(match[1]) * 1024 ** " kmgt".indexOf(match[2].toLowerCase() || " ")) : NaN;
}

// "90s", "30m", "2h", "1d", "1500ms", "60" (seconds) to milliseconds; NaN when it is none.
export function parseTime(text) {
    const match = /^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?\s*$/i.exec(text);
    const unit = { ms: 1, s: 1000, m: 60000, min: 60000, h: 3600000, d: 86400000 };
    return match ? Math.round(Number(match[1]) * unit[(match[2] || "s").toLowerCase()]) : NaN;
}

// Lines "KEY=VALUE" to an object; throws with the line that is none.
export function parsePairs(text) {
    const out = {};
    for (const line of text
        .split("\n")
        .map((one) => one.trim())
        .filter(Boolean)) {
        const at = line.indexOf("=");
        if (at < 1) throw new Error(`"${line}" is not KEY=VALUE`);
        out[line.slice(0, at)] = line.slice(at + 1);
    }
    return out;
}

export const lines = (text) =>
    text
        .split(/[\n,]/)
        .map((one) => one.trim())
        .filter(Boolean);
