// Package audit logs the security decisions of the agent API and counts them in a
// metric. It is called wherever such a decision is made. Keys are logged by their
// fingerprint; tokens must never be passed to it.
package audit
