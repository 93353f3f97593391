// Package names stands in for the DNS and the Services of a management cluster. Processes
// outside of Pods can't use either, so they get a Proxy as HTTPS_PROXY: its CONNECT looks a name
// up as a Pod's resolver does, and connects to the process behind the Service.
//
// Programs written in Go use no proxy for loopback addresses, so only names come here.
package names
