// Package hostlog takes the logs that hosts send when they are asked for one, and keeps each for
// an hour in a Secret that its host owns.
//
// All that happens is in the API server, so another leader goes on where this one ended: first
// the host's status says that there is a log and when it expires, then the Secret is written, and
// only then the request is removed. A host that gets no answer sends the log again. Package
// controller/host removes what has expired.
package hostlog
