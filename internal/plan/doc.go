// Package plan computes a host's plan: the desired state and the operation that the
// manager sends to the agent. The agent API calls it for each poll, and controllers ask it
// whether an operation is prevented. It is pure: the same host, site and cluster give the
// same plan. No other package may decide what a host does.
package plan
