// Package grant reconciles ElementalHostGrants: it moves free hosts of a pool into another
// namespace, and back.
//
// A host of a pool keeps its object there, as the record of the pool: with its name, its labels
// and what else its operators have written. It says in spec.grantedTo where the host is. A granted
// host is an object in the other namespace, which names the pool in spec.grantedFrom. Of the two
// exactly one has the key of the machine, and the phase in the pool's object says which. So one
// write moves the host, and one write moves it back:
//
//	free -> Moving -> Granted -> Returning -> free
//
// A reconcile continues from whatever it finds. An object that is missing causes nothing: it may
// be about to be restored or moved here. Only a deletion that this controller sees gives a host
// back.
package grant
