import { accessSync } from 'node:fs';

import type { Answer, Ask } from './ask.js';
import { candidates, origin, ownDatabase, socketVariable } from './endpoint.js';
import { invalid } from './errors.js';
import { Transport } from './transport.js';
import { nobody, refusedForOwn, Unreached } from './unreached.js';

/** A path that is too long would be cut, and another one be called. */
function checkLength(path: string): string {
  const most = process.platform === 'win32' ? 256 : process.platform === 'darwin' ? 103 : 107;
  if (Buffer.byteLength(path) <= most) return path;
  throw invalid(`the endpoint ${path} is too long: it needs ${Buffer.byteLength(path)} bytes and the system takes ${most}; name another with ${socketVariable}`);
}

/** Whether there is no socket or pipe. A pipe whose every instance is in use is there, although it cannot be looked at. */
function isMissing(path: string): boolean {
  try {
    accessSync(path);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT';
  }
}

/** The one connection to the daemon. It is made when it is needed, and made again when it broke. */
export class Connection {
  private readonly line: Transport;
  private found: string | undefined;

  constructor(
    private readonly socket: string | undefined,
    private readonly look: () => string[] = () => candidates(socket),
  ) {
    this.line = new Transport(() => origin(socket));
  }

  /** Where the daemon answered. From then on it is looked for nowhere else: its data is there. */
  get endpoint(): string | undefined {
    return this.found;
  }

  /** Where it is looked for. */
  get paths(): string[] {
    return this.found ? [this.found] : this.look();
  }

  /** Sends once. Throws Unreached where no whole answer came in time. */
  async send(ask: Ask, timeout: number): Promise<Answer> {
    if (this.found) return this.line.ask(this.found, ask, timeout);
    const paths = this.paths.map(checkLength);
    let telling: Unreached | undefined;
    for (const path of paths) {
      // The first of several is the user's own. With a database there, work would begin anew at another daemon.
      const database = path === paths[0] ? '' : ownDatabase();
      if (database) {
        if (isMissing(path)) continue;
        throw refusedForOwn(path, database, paths[0]!);
      }
      try {
        const answer = await this.line.ask(path, ask, timeout);
        this.found = path;
        return answer;
      } catch (error) {
        // A stranger ends the search: the environment is then not what its user thinks.
        if (!(error instanceof Unreached) || error.sent || error.stranger) throw error;
        // One that is there and refuses says more than one that is missing.
        if (!telling && !error.missing) telling = error;
      }
    }
    throw telling ?? nobody(paths.join(' or ') + origin(this.socket));
  }

  close(): void {
    this.line.close();
  }
}
