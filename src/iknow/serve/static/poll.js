/* Asking the server how things are, again and again: every two seconds, less often while it does not
answer, and not at all while nobody looks or a token is missing. */

const EVERY = 2000, LONGEST = 30_000, PATIENCE = 10_000;
const KEEP = "iknow-token";

/* The token lives as long as the browser's tab, and in this tab only. */
export const token = {
  get: () => sessionStorage.getItem(KEEP) ?? "",
  set: (text) => sessionStorage.setItem(KEEP, text),
  forget: () => sessionStorage.removeItem(KEEP),
};

/* One answer: { status }, or { trouble, text, wait } where there is none. */
async function ask() {
  /** @type {HeadersInit} */ const headers = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  let response;
  try {
    response = await fetch("v1/status", { headers, cache: "no-store", redirect: "error",
      signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    return { trouble: "gone", text: "The server does not answer." };
  }
  const answer = await response.json().catch(() => null);
  const text = typeof answer?.error === "string" ? answer.error : "";
  if (response.status === 401 || response.status === 403) return { trouble: "token", text };
  const wait = 1000 * Number(response.headers.get("Retry-After") ?? 0) || 0;
  if (!response.ok) {
    return { trouble: "gone", text: text || `The server answers with error ${response.status}.`, wait };
  }
  if (answer === null || typeof answer !== "object") {
    return { trouble: "gone", text: "Something answers here, but not with a status of iknow." };
  }
  return { status: /** @type {Status} */ (answer) };
}

/** Start asking. tell: gets every answer. Returns what asks at once. */
export function poll(tell) {
  let [timer, pause, asking, again] = [0, EVERY, false, false];
  async function refresh() {
    again = asking;  // the answer under way may be about an old token
    if (asking) return;
    clearTimeout(timer);
    asking = true;
    const answer = await ask();
    asking = false;
    if (again) { refresh(); return; }
    pause = answer.status ? EVERY : Math.min(Math.max(2 * pause, answer.wait ?? 0), LONGEST);
    tell(answer);
    if (answer.trouble !== "token" && !document.hidden) timer = setTimeout(refresh, pause);
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  refresh();
  return refresh;
}
