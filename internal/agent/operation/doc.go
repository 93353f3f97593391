// Package operation has what all operations of the agent share: the Runner that
// the run loop calls, and the Result that it records and reports.
//
// Each operation is a package below this one. Those that depend on the operating
// system's tools, such as the upgrade and the reset of Elemental OS, are in the
// platform's package. An operation knows its own documents in the state directory
// and the platform; it knows neither the run loop nor the manager connection.
//
// The update of the agent's own program (package update) is no operation: no plan
// orders it once, with an ID and a result. The plan pins a release, and the agent
// keeps its program at that release whenever no operation runs.
package operation
