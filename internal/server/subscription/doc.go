// Package subscription calls functions after a change. Packages authority and agentfiles
// use it, so that their users need not poll them.
package subscription
