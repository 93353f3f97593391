// Package objects reads single objects for commands of the plugin.
package objects
