// Reading traces without Python: tokens, events, nesting, gaps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trace/coverage.hpp"
#include "trace/event_reader.hpp"
#include "trace/json_reader.hpp"
#include "trace/json_value.hpp"
#include "trace/merge.hpp"
#include "trace/read_error.hpp"
#include "trace/repair.hpp"
#include "trace/slice_forest.hpp"
#include "trace/summary.hpp"
#include "trace/text_table.hpp"
#include "trace/validate.hpp"

namespace gpuprof::trace::reading {
namespace {

std::vector<std::string> tokens_of(const std::string& text, std::size_t step) {
  JsonReader reader;
  std::vector<std::string> found;
  Token token;
  for (std::size_t at = 0; at < text.size(); at += step) {
    // Each piece in memory of its own, so that a look past its end is seen.
    const std::string piece = text.substr(at, step);
    reader.feed(piece);
    while (reader.next(token)) {
      found.push_back(text.substr(token.begin, token.end - token.begin));
    }
  }
  if (!reader.done()) found.emplace_back("unfinished");
  return found;
}

TEST(JsonReader, AnswersTheSameTokensForAnyPieces) {
  const std::string text =
      "{\"a\\\"\\u00e9\" : [ 0,-0.5e+7 ,true,false,null,\"\xc3\xa9\xf0\x9f\x98\x80\"],\"b\":{}}\n";
  const std::vector<std::string> whole = tokens_of(text, text.size());
  EXPECT_EQ(whole.size(), 14U);
  for (std::size_t step = 1; step < 9; ++step) EXPECT_EQ(tokens_of(text, step), whole);
}

TEST(JsonReader, EveryCutIsUnfinished) {
  const std::string text = "[{\"a\":-1.5e3}]";
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    EXPECT_EQ(cut == 0 ? "unfinished" : tokens_of(text.substr(0, cut), cut).back(), "unfinished");
  }
}

TEST(JsonReader, SaysWhereAndWhatItExpected) {
  try {
    tokens_of("[1,\n  x]", 3);
    FAIL();
  } catch (const ReadError& error) {
    EXPECT_EQ(error.offset(), 6U);
    EXPECT_EQ(error.event(), kNoEvent);
    EXPECT_STREQ(error.what(), "byte 6: found 'x'; expected a value after ','");
  }
}

TEST(JsonReader, RefusesWhatRfc8259Does) {
  for (const char* text : {"[01]",          "[1.]",
                           "[.5]",          "[+1]",
                           "[1e]",          "[-]",
                           "['a']",         "[\"\\a\"]",
                           "[\"\t\"]",      "[1 2]",
                           "[,]",           "[1,]",
                           "{\"a\"}",       "{\"a\":}",
                           "{1:2}",         "[}",
                           "[]]",           "[nul]",
                           "[NaN]",         "[Infinity]",
                           "[\"\x80\"]",    "[\"\xe0\x80\x80\"]",
                           "\xef\xbb\xbf[]"}) {
    EXPECT_THROW(tokens_of(text, 1), ReadError) << text;
    EXPECT_THROW(tokens_of(text, 100), ReadError) << text;
  }
}

TEST(JsonReader, ToleratesWhatCanBeMendedAndNotesIt) {
  const std::string text = "\xef\xbb\xbf[NaN,-Infinity,\"\x01\x80\xc3(\",]";
  JsonReader reader(true);
  reader.feed(text);
  Token token;
  while (reader.next(token)) {
  }
  EXPECT_TRUE(reader.done());
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places;
  for (const Defect& defect : reader.take_defects()) places.emplace_back(defect.begin, defect.end);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> wanted{
      {0, 3}, {4, 7}, {8, 17}, {19, 20}, {20, 21}, {21, 22}, {24, 25}};
  EXPECT_EQ(places, wanted);
}

TEST(JsonValue, TimesKeepTheirNanoseconds) {
  EXPECT_EQ(nanoseconds("1732181234567890.123")->value, 1732181234567890123);
  EXPECT_EQ(nanoseconds("-0.0015")->value, -2);
  EXPECT_EQ(nanoseconds("1e-3")->value, 1);
  EXPECT_EQ(nanoseconds("123456E+2")->value, 12345600000);
  EXPECT_FALSE(nanoseconds("0.0001")->exact);
  EXPECT_TRUE(nanoseconds("0.001000000000000000000000000000000000000")->exact);
  EXPECT_FALSE(nanoseconds("1e18").has_value());
  EXPECT_FALSE(nanoseconds("1e999999999999999999999").has_value());
  EXPECT_EQ(nanoseconds("1e-999999999999999999999")->value, 0);
  EXPECT_EQ(nanoseconds("0e999999999999999999999")->value, 0);
  EXPECT_EQ(microseconds(-1'000'001), "-1000.001");
  EXPECT_EQ(microseconds(7), "0.007");
}

TEST(JsonValue, StringsLoseTheirEscapesAndGetThem) {
  EXPECT_EQ(unquoted(R"("a\"\\\/\n\u00e9\ud83d\ude00")"), "a\"\\/\n\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(unquoted(R"("\ud83dx\udc00")"), "\xef\xbf\xbdx\xef\xbf\xbd");
  EXPECT_EQ(quoted("a\"\\\x01"), R"("a\"\\\u0001")");
}

TEST(JsonValue, MembersAreFoundAtTheTopOnly) {
  const std::string object = R"({"a":{"b":1},"\u0062":[2],"c":"x"})";
  EXPECT_EQ(member(object, "b")->value, "[2]");
  EXPECT_EQ(member(object, "a")->value, R"({"b":1})");
  EXPECT_EQ(member(object, "c")->value, "\"x\"");
  EXPECT_FALSE(member(object, "d").has_value());
  EXPECT_FALSE(member("[1]", "d").has_value());
  EXPECT_FALSE(member("", "d").has_value());
}

TEST(EventReader, HandsOutEventsAndWhatIsBesideThem) {
  const std::string text =
      R"({"first":[1,{"x":2}],"traceEvents":[{"ph":"X","args":{"a":[]},"ts":5},{"ph":"i"}],"z":"end"})";
  for (std::size_t step = 1; step <= text.size(); ++step) {
    EventReader reader;
    TraceEvent event;
    std::string seen;
    for (std::size_t at = 0; at < text.size(); at += step) {
      const std::string piece = text.substr(at, step);
      reader.feed(piece);
      while (reader.next(event)) {
        seen += std::string(event.text) + "|" + std::string(event.raw(Field::kArgs)) + "|" +
                std::string(event.raw(Field::kTs)) + ";";
        EXPECT_EQ(text.substr(event.offset, event.text.size()), event.text);
      }
    }
    const End end = reader.finish();
    EXPECT_TRUE(end.complete);
    EXPECT_EQ(seen, R"({"ph":"X","args":{"a":[]},"ts":5}|{"a":[]}|5;{"ph":"i"}||;)");
    ASSERT_EQ(reader.headers().size(), 2U);
    EXPECT_EQ(reader.headers()[0].value, R"([1,{"x":2}])");
    EXPECT_EQ(reader.headers()[1].value, "\"end\"");
  }
}

TEST(EventReader, CountsTheCompleteEventsOfACutFile) {
  const std::string text = "[\n{\"ph\":\"i\"},\n{\"ph\":\"i\"},\n";
  for (std::size_t cut = 1; cut <= text.size(); ++cut) {
    EventReader reader;
    TraceEvent event;
    const std::string piece = text.substr(0, cut);
    reader.feed(piece);
    while (reader.next(event)) {
    }
    const End end = reader.finish();
    EXPECT_EQ(end.events, cut < 12 ? 0U : cut < 24 ? 1U : 2U) << cut;
    EXPECT_EQ(end.inside_event, (cut > 2 && cut < 12) || (cut > 14 && cut < 24)) << cut;
    EXPECT_FALSE(end.complete);
  }
}

// Notes what it is told, by tag.
class Notes final : public SliceVisitor {
 public:
  void inside(const Slice& outer, std::int64_t ns) override { taken[outer.tag] += ns; }
  void crossing(const Slice& first, const Slice& second) override {
    crossings.emplace_back(first.tag, second.tag);
  }
  void outside(const Slice& slice) override { tops.push_back(slice.tag); }

  std::map<std::uint64_t, std::int64_t> taken;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> crossings;
  std::vector<std::uint64_t> tops;
};

// Slices that nest at random: the whole of a span, split and split again.
void split(std::mt19937& random, std::int64_t begin, std::int64_t end, std::vector<Slice>& out) {
  out.push_back({begin, end, out.size()});
  std::int64_t at = begin;
  while (end - begin > 8) {
    at += static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end - begin));
    const std::int64_t to =
        at + 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end - begin));
    if (to >= end) return;
    split(random, at, to, out);
    at = to;
  }
}

TEST(SliceForest, SettlingEarlyChangesNothingInTheOrderOfBeginsOrEnds) {
  std::mt19937 random(7);
  std::vector<Slice> slices;
  for (std::int64_t at = 0; at < 2000; ++at) split(random, at * 10'000, at * 10'000 + 9000, slices);
  slices.push_back({-5, 30'000'000, slices.size()});
  ASSERT_GT(slices.size(), 3000U);
  Notes exact;
  SliceForest all(exact);
  for (const Slice& slice : slices) all.add(0, slice);
  all.finish();
  const auto by_begin = [](const Slice& a, const Slice& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  };
  const auto by_end = [](const Slice& a, const Slice& b) {
    return a.end != b.end ? a.end < b.end : a.begin > b.begin;
  };
  for (const bool begins : {true, false}) {
    std::vector<Slice> ordered = slices;
    if (begins) {
      std::sort(ordered.begin(), ordered.end(), by_begin);
    } else {
      std::sort(ordered.begin(), ordered.end(), by_end);
    }
    Notes notes;
    SliceForest forest(notes, 400);
    for (const Slice& slice : ordered) forest.add(0, slice);
    forest.finish();
    EXPECT_EQ(notes.taken, exact.taken);
    EXPECT_FALSE(forest.approximate());
    EXPECT_TRUE(notes.crossings.empty());
  }
}

TEST(SliceForest, TellsWhatCrossesAndWhatIsAtTheTop) {
  Notes notes;
  SliceForest forest(notes);
  forest.add(0, {0, 10, 1});
  forest.add(0, {5, 15, 2});
  forest.add(0, {15, 20, 3});
  forest.add(0, {20, 20, 4});
  forest.add(1, {5, 6, 5});
  forest.finish();
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> crossings{{1, 2}};
  EXPECT_EQ(notes.crossings, crossings);
  EXPECT_EQ(notes.tops, (std::vector<std::uint64_t>{1, 2, 3, 5}));
}

TEST(SliceForest, SaysWhenItCouldNotPlaceALateSlice) {
  Notes notes;
  SliceForest forest(notes, 16);
  for (std::int64_t at = 0; at < 1000; ++at) forest.add(0, {at * 10, at * 10 + 5, 0});
  forest.add(0, {1, 2, 1});
  forest.finish();
  EXPECT_TRUE(forest.approximate());
}

TEST(Coverage, KeepsBusyTimeAndTheLargestGapsExactWhenItIsFull) {
  Coverage bounded(16);
  Coverage exact(1U << 20U);
  std::mt19937 random(3);
  std::int64_t at = 0;
  for (int count = 0; count < 5000; ++count) {
    at += static_cast<std::int64_t>(random() % 1000) + (count % 997 == 0 ? 100'000 : 0);
    const std::int64_t end = at + static_cast<std::int64_t>(random() % 500);
    bounded.add({at, end});
    exact.add({at, end});
    at = end;
  }
  EXPECT_EQ(bounded.busy(), exact.busy());
  EXPECT_EQ(bounded.gap_count(), exact.gap_count());
  EXPECT_EQ(bounded.extent().end, exact.extent().end);
  const auto some = bounded.largest_gaps(4);
  const auto all = exact.largest_gaps(4);
  ASSERT_EQ(some.size(), all.size());
  for (std::size_t gap = 0; gap < all.size(); ++gap) EXPECT_EQ(some[gap].begin, all[gap].begin);
}

TEST(Coverage, UnitesIntervalsThatComeInAnyOrder) {
  Coverage coverage;
  for (const Interval interval : {Interval{50, 60}, {0, 10}, {5, 20}, {55, 70}, {8, 9}, {30, 30}}) {
    coverage.add(interval);
  }
  EXPECT_EQ(coverage.busy(), 40);
  EXPECT_EQ(coverage.gap_count(), 2U);
}

TEST(TextTable, GivesEachTextOneNumberUntilItIsFull) {
  TextTable texts(3);
  EXPECT_EQ(texts.number("a"), texts.number("a"));
  EXPECT_NE(texts.number("a"), texts.number("b"));
  EXPECT_NE(texts.number(""), TextTable::kOther);
  EXPECT_EQ(texts.number("d"), TextTable::kOther);
  EXPECT_EQ(texts.text(texts.number("b")), "b");
}

// All tools, on text that a simple generator breaks: they read it, or throw a ReadError.
TEST(TraceTools, BrokenTextIsRefusedOrReadTheSameInAnyPieces) {
  const std::string seed =
      R"({"a":[1,"\u00e9"],"traceEvents":[{"ph":"X","name":"a\"","pid":1,"tid":2,"ts":1.5,"dur":2,"args":{"k":[{}]}},)"
      R"({"ph":"b","id":"0x1","cat":"c","name":"n","ts":1e3},{"ph":"s","id":4,"ts":2}],"z":-1.5e-3})";
  const auto outcome = [](const std::string& text, std::size_t step) {
    std::string result;
    const auto run = [&](auto&& work) {
      try {
        for (std::size_t at = 0; at < text.size(); at += step) work(text.substr(at, step), false);
        work({}, true);
      } catch (const ReadError& error) {
        result += error.what();
      }
      result += ';';
    };
    Summary summary(GroupBy::kName);
    run([&](const std::string& piece, bool last) {
      last ? summary.finish() : summary.feed(piece);
      if (last) result += std::to_string(summary.rows(9).size());
    });
    Validation validation;
    run([&](const std::string& piece, bool last) {
      last ? validation.finish() : validation.feed(piece);
      if (last) result += std::to_string(validation.findings().size());
    });
    Repair repair;
    run([&](const std::string& piece, bool last) {
      last ? repair.finish(result) : repair.feed(piece, result);
    });
    MergeScan scan("a");
    run([&](const std::string& piece, bool last) {
      if (!last) {
        scan.feed(piece);
        return;
      }
      Merge merge({scan.finish()}, false);
      merge.begin(result);
      merge.begin_file();
      merge.feed(text, result);
      merge.end_file();
    });
    return result;
  };
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string text = seed;
    for (unsigned edits = 1 + random() % 5; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      if (random() % 3 == 0) {
        text.erase(at, random() % 5);
      } else if (random() % 2 == 0) {
        text[at] = static_cast<char>(random());
      } else {
        text.insert(at, 1, "{}[],:\"\\0-1eN"[random() % 13]);
      }
      if (text.empty()) text = seed;
    }
    const std::string whole = outcome(text, text.size());
    EXPECT_EQ(outcome(text, 1 + random() % 7), whole) << text;
  }
}

}  // namespace
}  // namespace gpuprof::trace::reading
