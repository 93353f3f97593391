// Package frontend serves the gateway's API for users: HTTPS with HTTP/2 and HTTP/1.1, for
// handlers that authenticate callers themselves. It asks for a client certificate, and passes
// on whatever it gets.
//
// Connections are bounded, in all and by source. Requests have no time limit, because watches
// and sessions take as long as their caller likes; handlers bound how many there are.
package frontend
