// Package fleet lists ElementalHosts as a table: what each host is, who has it, and when it
// was last heard of. It reads hosts by pages, so that ten thousand of them need little memory.
package fleet
