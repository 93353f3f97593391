// Package remote has a fleet run in a process of its own, so that its memory and CPU
// time can be told from those of whoever uses it.
//
// Both sides speak in lines of JSON over the process's standard input and output. The
// process ends when its input does, so that none outlives its user.
package remote
