// Package subscription calls functions after a change. Packages authority and servedfiles
// use it, so that their users need not poll them.
package subscription
