// Package download has what downloads of the agent share: the answers of HTTP servers to
// requests for a part of a file, limits for bodies of servers that nobody vouches for, and
// files that grow until they are complete.
//
// The caller knows the digest of what it downloads and verifies it. So this package only
// has to bound what a server can do: how many bytes it sends, how slowly, and where it
// redirects to.
package download
