// Package support collects what helps to find out what is wrong with a cluster or a fleet, in
// one archive that may be given to others: objects, Events and logs of the manager, without
// secrets. What can't be read is named, and does not keep the rest from being collected.
package support
