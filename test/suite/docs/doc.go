// Package docs tests that the documentation agrees with the code: conditions,
// reasons, Events, flags, commands, links, paths and figures. The tables of fields
// and metrics need no test: `make generate` writes them, and `make verify` checks
// that they are up to date. Each block of shell has an entry in a table, which names
// the test that runs it, or the reason why none does.
package docs
