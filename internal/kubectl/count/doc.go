// Package count words numbers of things.
package count
