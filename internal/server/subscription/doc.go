// Package subscription tells parts of the manager that something has changed
// which they read elsewhere.
package subscription
