package remediation

// HostHandler returns the handler of ElementalHost events.
var HostHandler = (*Reconciler).hostHandler
