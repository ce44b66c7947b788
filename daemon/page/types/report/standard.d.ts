// The server makes this module from the table of lists in weir-schema.

/** A list that every report has. */
export interface Standard {
  /** Its short name. */
  name: string;
  /** Its field in the report. */
  field: string;
  /** The fields of its keys. */
  key: string[];
  /** What it counts, if not packets and bytes. */
  counted: string | null;
  /** What it has, in a sentence. */
  about: string;
  /** Whether windows can be added up, so that each key has a history. */
  addsUp: boolean;
}

/** The lists, in the order of their tabs. */
export const STANDARD: Standard[];
