// Package api serves the HTTP routes of the agent API (package protocol). Each HTTP request
// passes the same steps: the route is looked up, and an unlisted one refused; a request to
// a route that needs no known key is rate-limited by its source; the host is found by the key
// of the TLS connection. Only then a handler runs, and it uses no other host than the caller's
// own. The routes that install an agent need no key, and use no object at all.
//
// Handlers decode, limit and answer HTTP requests. Decisions and writes belong to the
// packages that they call: enrol, trust, status and bootstrapsecret.
package api
