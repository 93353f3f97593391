package machine

// AddIndexes lets tests list as the manager does.
var AddIndexes = addIndexes

// HostHandler is what hears of changes to hosts.
var HostHandler = (*Reconciler).hostHandler
