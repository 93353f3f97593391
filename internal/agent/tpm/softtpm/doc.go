// Package softtpm starts software TPMs for tests: Debian's swtpm.
package softtpm
