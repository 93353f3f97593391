// Package hoststore reads and writes ElementalHosts for the agent API: by name, by
// key and by index, and with retries after conflicts. Reads come from the cache, but
// the API's own writes are visible at once: a host polls right after it has
// enrolled, and a report must not be compared with a state that an earlier report
// has replaced.
//
// It decides nothing about who may read or write; its callers do.
package hoststore
