package remediation

// HostHandler is what hears of changes to hosts.
var HostHandler = (*Reconciler).hostHandler
