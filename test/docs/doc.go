// Package docs tests that the user guide names what the code has: every
// condition, reason, metric and flag.
package docs
