// Package compaction decides which tables of a version to rewrite, and says
// which of their entries survive. It reads no file, starts nothing and waits
// for nothing: its caller owns the tables, the locks and the workers.
//
// The tree is leveled: level 0 takes flushed memtables and is compacted into the
// base level, which moves up as the data grows; see LevelTargets.
//
//	plan, ok := compaction.Pick(version, compaction.Input{
//		Config: config, Running: reservations, OldestSnapshot: oldest,
//	})
//	if ok && !plan.TrivialMove && !plan.Drop {
//		spans := rangedel.Fragment(rangeTombstones(plan), snapshots)
//		merger := compaction.NewMerger(inputs(plan), compaction.MergeOptions{
//			Snapshots: snapshots, Elide: plan.Elider().Elide, RangeDels: spans, ZeroSeq: plan.ZeroSeq(),
//		})
//		err := compaction.Write(merger, plan.KeptRangeDels(spans, snapshots[0]), plan.Splitter(), tables)
//	}
//
// The picking functions are pure and safe for concurrent use. Plans that are to
// run side by side are kept apart by giving each pick the Plan.Reservation of all
// earlier ones (invariant 20). A Merger, Elider or Splitter is for one goroutine.
package compaction
