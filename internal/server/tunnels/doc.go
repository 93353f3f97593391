// Package tunnels knows which hosts have a tunnel, and dials through them.
package tunnels
