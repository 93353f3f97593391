// Package nftable keeps a table of the agent's own in the kernel's packet filter. It
// replaces and deletes the table as a whole, each in one transaction, and changes no other
// table. The packages reject and redirect have one each.
package nftable
