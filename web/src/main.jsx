// The dashboard's first lines: show, then find out who is looking.
import { render } from "preact";
import { App } from "./app.jsx";
import { begin, leave } from "./state.js";
import "./style.css";

render(<App />, document.getElementById("app"));
begin().catch((error) => leave(error.message));
