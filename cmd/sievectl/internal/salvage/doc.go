// Package salvage makes a new store out of what can be read of a damaged one.
//
//	report, err := salvage.Repair("db", "db.new")
//
// It only reads the old store, and writes the new one through the public API,
// so that nothing that it does can make things worse: of each user key it takes
// the newest version that it can find, and writes that if it is a put. What
// could not be read is in the report, with file and offset.
//
// Which version is newest is what sequence numbers say. They are unique, but
// for the zeros that compaction gives to entries which are older than every
// other version of their key. Only files that the manifest lists are used,
// because those that a compaction has replaced may hold, with a higher number,
// what is zero where it counts. Without a manifest that can be read to its end
// all files are used, and the report says what that may do.
//
// Nothing here is safe for concurrent use, and nobody may write to the old
// store meanwhile.
package salvage
