// The hub's three views, fetched when the first of them is looked at.
export { Agents } from "./agents.jsx";
export { Board } from "./board.jsx";
export { Comms } from "./comms.jsx";
