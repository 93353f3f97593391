// Package shell runs programs and prints the progress of long steps.
package shell
