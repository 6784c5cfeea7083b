/** Requests to a broker: JSON over `fetch`. */

import { Refused } from "./types.js";

export class Client {
  private readonly base: string;

  constructor(
    server: string,
    private readonly token?: string,
  ) {
    this.base = server.replace(/\/+$/, "");
  }

  /** Sends a request, and returns the answer. Throws `Refused`, or another error if the outcome is not known. */
  async ask(
    method: string,
    path: string,
    body?: unknown,
    { headers = {}, signal }: { headers?: { [name: string]: string }; signal?: AbortSignal | undefined } = {},
  ): Promise<any> {
    const sent: { [name: string]: string } = { ...headers };
    if (body !== undefined) sent["Content-Type"] = "application/json";
    if (this.token) sent["Authorization"] = `Bearer ${this.token}`;
    const request: RequestInit = { method, headers: sent, signal: signal ?? null };
    if (body !== undefined) request.body = JSON.stringify(body);
    const response = await fetch(this.base + path, request);
    const text = await response.text();
    const shown = text === "" ? {} : JSON.parse(text);
    if (response.status >= 400) throw new Refused(response.status, shown);
    return shown;
  }
}
