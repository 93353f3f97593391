// Package review asks the management cluster who the caller of a request is, and what the
// caller may do there. It takes the credentials that the management cluster's API server
// takes: tokens of any kind, which are reviewed there (TokenReview), and client certificates
// of its CA, which API servers publish.
//
// Decisions are kept for ten seconds. Tokens are not kept, only their hashes.
package review
