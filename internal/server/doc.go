// Package server is the agent API: what hosts enrol at, learn their plan from
// and report to (package protocol).
//
// A request passes one chain (routes.go): the route is looked up and an unlisted
// one refused, the source is rate-limited where anybody may call, the host is
// found by the key of its TLS connection, and only then does a handler look at
// an object, always the caller's own. A handler returns an error; the chain
// makes the answer of it.
//
// The API server is the only store. What hosts report is written in one request
// together with the conditions that follow from it (package hoststatus), and
// nothing is written when nothing changes. A few things are kept in memory, all
// of which a restart may lose: the own writes that the cache has not seen yet
// (hosts.go), who is connected (presence.go) and from which boot (boots.go),
// progress and evidence that wait for their turn (progress.go, evidence.go), who has just changed a key
// (trust.go), hosts that are about to be created (pending.go), what the audit log
// has just said (audit.go) and the rates of sources (limiter.go).
//
// Before any of that a connection passes the gate (gate.go).
//
// The API runs on the leader alone, so there is one process to know who is
// connected (leader.go).
package server
