// Runs in a page that a program in a sandbox serves: tries all that such a page might, and says what came of it.
// `outside` is the server's own origin, in the address behind the '#'.
const outside = location.hash.slice(1);
const attempt = async (what) => {
  try {
    return await what();
  } catch (error) {
    return "refused: " + error.name;
  }
};
const chat = () => new Promise((resolve, reject) => {
  const socket = new WebSocket(new URL("chat", location.href.split("#")[0]).href.replace("http", "ws"));
  socket.onopen = () => socket.send("grün");
  socket.onmessage = (event) => resolve(event.data);
  socket.onerror = () => reject(new DOMException("", "SocketError"));
});
const whoami = async (base) => {
  const reply = await fetch(base + "/api/v1/whoami", { credentials: "include" });
  return `${reply.status} ${await reply.text()}`;
};
(async () => {
  window.told = {
    origin: self.origin,
    cookies: await attempt(() => {
      document.cookie = "mine=2";
      return document.cookie;
    }),
    storage: await attempt(() => localStorage.length),
    whoami: await attempt(() => whoami("")),
    outside: await attempt(() => whoami(outside)),
    worker: await attempt(async () => (await navigator.serviceWorker.register("page")).scope),
    chat: await attempt(chat),
  };
  document.getElementById("told").textContent = JSON.stringify(window.told, null, 1);
})();
