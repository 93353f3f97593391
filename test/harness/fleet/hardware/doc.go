// Package hardware invents the hardware and the programs of virtual hosts.
package hardware
