// What the page asks the service.

let token = sessionStorage.getItem("token") ?? "";

export function setToken(value) {
  token = value.trim();
  sessionStorage.setItem("token", token);
}

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Ask a route; what is refused is raised with the sentence of the service. */
export async function ask(path, body) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const options = body === undefined ? { headers } : { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, options);
  const content = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, content.error.message);
  return content;
}
