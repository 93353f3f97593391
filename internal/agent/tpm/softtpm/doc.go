// Package softtpm starts software TPMs for tests, with Debian's package swtpm.
package softtpm
