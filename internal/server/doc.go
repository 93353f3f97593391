// Package server assembles the agent API (package protocol), through which hosts enrol,
// receive their plans and report, and runs it on the leader. cmd/manager starts it.
//
// The packages below it have their own state. A package calls only packages that are listed
// below it:
//
//	listener         accepts TLS connections, with limits for each source
//	api              HTTP routes and handlers
//	installscript    renders the script that installs the agent
//	enrol            gives a key a host
//	trust            authenticates, rotates and locks keys
//	status           writes reports and connection state into ElementalHost status
//	tunnels          holds the tunnels of hosts, and decides who may have one
//	bootstrapsecret  finds bootstrap data
//	planinput        reads what plans are computed from, and wakes polls when it changes
//	session          open polls and other state of connected hosts
//	hoststore        reads and writes ElementalHosts
//	facts            converts what hosts report
//	audit, problem, ratelimit, timer
//
// authority and servedfiles provide the CA of the serving certificates, the agents' binaries
// and the bundles; the manager starts them separately.
//
// The API server is the only store. What these packages keep in memory may be lost in a
// restart. Because there is no shared memory, only one process, the leader, serves the API.
package server
