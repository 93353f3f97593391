// Package reject rejects connections to a former control plane endpoint on the
// host that has its address. It sends TCP resets, so that clients reconnect to
// the current endpoint. Connections from the host itself are accepted. Package
// endpoint calls it. It uses one nftables table, which it replaces and deletes
// as a whole; it must not change other tables.
package reject
