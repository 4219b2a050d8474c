// Dark or light: as the system says, until somebody says otherwise here.
import { effect, signal } from "@preact/signals";

const KEY = "atoll-theme";
const kept = () => {
    try {
        return localStorage.getItem(KEY);
    } catch {
        return null;
    }
};
export const theme = signal(["dark", "light"].includes(kept()) ? kept() : "system");
export const nextTheme = () => {
    theme.value = { system: "dark", dark: "light", light: "system" }[theme.value];
    try {
        localStorage.setItem(KEY, theme.value);
    } catch {
        /* then for this page alone */
    }
};
effect(() => {
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
});
