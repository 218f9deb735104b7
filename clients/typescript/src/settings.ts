/** What a client was told, with the defaults filled in. Times are milliseconds. */
export interface Settings {
  socket: string | undefined;
  owner: string | undefined;
  deadline: number;
  startDeadline: number;
  /** how long the answer to one request may take where nothing else can be done */
  timeout: number;
  failOpen: boolean;
  spool: { folder: string; maxBytes: number; whenItFails: 'raise' | 'drop' };
  autostart: boolean;
  whole: boolean | undefined;
  unserializable: 'drop' | 'refuse';
  client: string;
  warn: (message: string) => void;
}
