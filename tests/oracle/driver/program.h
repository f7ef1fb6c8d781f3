// Programs: what an allocator is asked, a step a line. README.md has the words.
#pragma once
#include <cstdint>
#include <cstdio>
#include <istream>
#include <sstream>
#include <string>
#include <vector>

struct Step {
  std::string word;
  std::vector<std::string> arguments;
  std::string rest; // the line behind the word

  int64_t number(size_t index) const { return std::stoll(arguments.at(index)); }
};

struct Program {
  std::string name, settings;
  int devices = 1;
  uint64_t capacity_bytes = 1ull << 36;
  std::vector<Step> steps;
};

inline Step parse_step(const std::string& line) {
  Step step;
  std::istringstream words(line);
  words >> step.word;
  std::getline(words >> std::ws, step.rest);
  std::istringstream arguments(step.rest);
  for (std::string word; arguments >> word;) step.arguments.push_back(word);
  return step;
}

// The programs of a text; each begins with a line `program NAME`.
inline std::vector<Program> parse_programs(std::istream& in) {
  std::vector<Program> programs;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    Step step = parse_step(line);
    if (step.word == "program") {
      programs.push_back({});
      programs.back().name = step.rest;
      continue;
    }
    if (programs.empty()) programs.push_back({});
    Program& program = programs.back();
    if (step.word == "with") program.settings = step.rest;
    else if (step.word == "devices") program.devices = (int)step.number(0);
    else if (step.word == "capacity") program.capacity_bytes = (uint64_t)step.number(0);
    else program.steps.push_back(std::move(step));
  }
  return programs;
}
