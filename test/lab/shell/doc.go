// Package shell runs programs and tells a person how far a long piece of work has come.
package shell
