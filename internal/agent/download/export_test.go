package download

// CheckRedirect is tested without a server, whose certificate no host trusts.
var CheckRedirect = checkRedirect
